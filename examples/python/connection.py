"""Connects to the server at `REDIS_URL`, or to port 6379 on this machine."""

import os

import redis


def connect():
    url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
    # Replies are text instead of bytes, and have the same shape in both protocols: {stream: [(id, fields), …]}.
    return redis.Redis.from_url(url, decode_responses=True, legacy_responses=False)
