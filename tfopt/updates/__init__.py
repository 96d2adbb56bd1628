"""Training ops: updates by the rules of the table, and TensorFlow's ops beside them."""
