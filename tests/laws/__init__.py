"""Laws over all public names, tried by programs that are drawn from tables of factors."""
