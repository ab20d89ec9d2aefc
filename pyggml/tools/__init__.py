"""What the command line does, a module each, without its options and colours."""
