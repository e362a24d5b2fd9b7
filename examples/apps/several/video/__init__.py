"""Videos of the studio."""
