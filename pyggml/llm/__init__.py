"""Language models on top of the graph runtime: the llama family, its cache, text in and out."""
