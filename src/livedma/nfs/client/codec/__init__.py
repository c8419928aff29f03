"""Arguments and results of the operations that the client uses, a module for each family."""
