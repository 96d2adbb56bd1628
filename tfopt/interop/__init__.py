"""Interoperation: load the state of Keras, torch and bitsandbytes, drop-in torch optimizers."""
