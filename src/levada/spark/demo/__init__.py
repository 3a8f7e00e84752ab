"""What `levada demo` feeds to the example pipeline, and how it knows what must come out."""
