"""Mails of the studio."""
