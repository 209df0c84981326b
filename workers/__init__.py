"""The worker process: its composition root and its two queues."""
