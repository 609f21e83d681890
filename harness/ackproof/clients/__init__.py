"""The clients of a run: producers, readers, group members and services, in processes of their own. See README.md.

`workload` starts, watches, stops and kills the processes of producers and live readers; `final_read` runs the final
readers. `launch` starts one process and talks to it by `channel`. `contract` has the settings files and what an adapter
of a client library offers: `librdkafka`, `java`, `command`. `journal` (producers) and `parts` (readers) write ledgers.
"""
