"""What a GGUF file says of its model, as the files of a folder of transformers."""
