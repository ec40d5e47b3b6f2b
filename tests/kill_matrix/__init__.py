"""Small wrong changes of the product's functions, and which tests notice each: a gate before tests are taken away."""
