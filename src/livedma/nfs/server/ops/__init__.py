"""The operations of COMPOUND, a module for each family of them."""
