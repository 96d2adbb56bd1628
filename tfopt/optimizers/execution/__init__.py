"""How a step of a rule is planned, checked and carried out."""
