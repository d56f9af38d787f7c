"""What is wrong with logged data, or worth knowing, before a model is made of it."""
