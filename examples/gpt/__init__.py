"""A small GPT and the text it is trained on, shared by the examples."""
