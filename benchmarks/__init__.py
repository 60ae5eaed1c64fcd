"""Measurements that are too long for tests. Each writes records that the documentation is made from."""
