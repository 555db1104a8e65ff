"""Where the server is: `REDIS_URL`, or the usual port on this machine."""

import os

import redis


def connect():
    url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
    # Text instead of bytes, and replies of one shape whichever protocol is spoken: {stream: [(id, fields), …]}.
    return redis.Redis.from_url(url, decode_responses=True, legacy_responses=False)
