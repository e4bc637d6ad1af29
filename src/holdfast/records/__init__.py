"""What users keep: create, read, change. Rules and defaults live here; rows are reached through ports."""
