"""Factories and fakes that several tests share."""
