"""Each kind of error with its exact line and column. The caret (‸) in a test's text is where it must be reported."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ackproof.plan import InvalidExperiment, Plan

CLAIMS = 'claims: {C09: {says: acks are enough, fails: [{vanished: "> 0"}]}}'

Load = Callable[[str], Plan]
Changed = Callable[[str, str], tuple[str, int, int]]

# fmt: off
# old text, new text, path, part of the message, suggestion
CASES: list[tuple[str, str, str, str, str | None]] = [
    # names
    ("name: good-one\n", "‸nam: good-one\n", "nam", "unknown field 'nam'", "name"),
    ("  duration: 15s", "  ‸duratoin: 15s", "workload.duratoin", "unknown field", "duration"),
    ("    value_size", "    ‸value-size", "workload.producers.value-size", "unknown field", "value_size"),
    ("  duration: 15s", "  ‸acks: all", "workload.acks", "belongs under workload.producers", None),
    ("seed: 7", "‸frobnicate: 7", "frobnicate", "expected one of name, description", None),
    ("    partitions: 3", "    ‸Partitions: 3", "topics.orders.Partitions", "unknown field", "partitions"),
    ("name: good-one", "name: ‸-good one", "name", "expected a name of up to 100 letters", None),
    (CLAIMS, "backend: ‸proces", "backend", "expected 'process'", "process"),
    # wrong types
    ("  brokers: 3", "  brokers: ‸three", "cluster.brokers", "expected a whole number, not the text 'three'", None),
    ("  brokers: 3", "  brokers: ‸3.5", "cluster.brokers", "expected a whole number, not the number 3.5", None),
    ("  brokers: 3", '  brokers: ‸"3"', "cluster.brokers", "expected a whole number, not the text '3'", None),
    ("  brokers: 3", "  brokers: ‸true", "cluster.brokers", "not the truth value true", None),
    ("  brokers: 3", "  brokers: ‸[3]", "cluster.brokers", "not a list", None),
    ("  brokers: 3", "  ‸brokers:", "cluster.brokers", "expected a value, not nothing", None),
    ("  brokers: 3", "  brokers: ‸51", "cluster.brokers", "at most 50", None),
    ("  brokers: 3", "  brokers: ‸0", "cluster.brokers", "at least 1", None),
    ("  controllers: 1", "  controllers: ‸2", "cluster.controllers", "1, 3 or 5", None),
    ("idempotence: false", "idempotence: ‸no", "workload.producers.idempotence", "true or false", "false"),
    ("idempotence: false", "idempotence: ‸1", "workload.producers.idempotence", "not the number 1", None),
    ("  racks: [a, b]", "  racks: ‸a", "cluster.racks", "expected a list, not the text 'a'", None),
    ("  racks: [a, b]", "  racks: [a, ‸2]", "cluster.racks[2]", "expected a text, not the number 2", None),
    ("topics:\n  orders:\n", "topics:\n  audit: ‸5\n  orders:\n", "topics.audit", "expected a mapping", None),
    ("    acks: all", "    acks: ‸al", "workload.producers.acks", "expected 0, 1 or all", None),
    ("    acks: all", "    acks: ‸true", "workload.producers.acks", "expected 0, 1 or all", None),
    ("    acks: all", "    compression: ‸lz", "workload.producers.compression", "not the text 'lz'", "lz4"),
    ("repeat: 2", "repeat: ‸0", "repeat", "at least 1", None),
    ("seed: 7", "seed: ‸-1", "seed", "at least 0", None),
    (CLAIMS, "claims: ‸C09", "claims", "expected a mapping", None),
    (CLAIMS, "claims: {‸C 9: {says: s}}", "claims[C 9]", "expected the name of a claim", None),
    (CLAIMS, "claims: {‸C09: {holds: []}}", "claims.C09.says", "'says' is missing", None),
    (CLAIMS, "claims: {C09: {says: s, holds: [{‸lots: 0}]}}", "claims.C09.holds[1].lots", "unknown quantity", "lost"),
    (CLAIMS, "claims: {C09: {says: s, fails: [{lost: ‸many}]}}", "claims.C09.fails[1].lost", "expected a count", None),
    (
        CLAIMS,
        "claims: {C09: {says: s, fails: [{given: {acks: ‸2}, lost: 0}]}}",
        "claims.C09.fails[1].given.acks",
        "no possible value",
        None,
    ),
    (
        CLAIMS,
        "claims: {C09: {says: s, holds: [{longest_gap(produce): ‸mean}]}}",
        "claims.C09.holds[1][longest_gap(produce)]",
        "'mean' demands nothing",
        None,
    ),
    (
        CLAIMS,
        'claims: {C09: {says: s, measured: [{longest_gap(produce): ‸"mean < 2s"}]}}',
        "claims.C09.measured[1][longest_gap(produce)]",
        "what is measured has no bound; leave '< 2s' out",
        None,
    ),
    (
        CLAIMS,
        'claims: {C09: {says: s, measured: [{longest_gap(produce): ‸"< 2s"}]}}',
        "claims.C09.measured[1][longest_gap(produce)]",
        "a statistic of repeats",
        None,
    ),
    (CLAIMS, "claims: {C09: ‸{says: s}}", "claims.C09", "nothing shows it", None),
    ("max_indeterminate: 0.5", "max_indeterminate: ‸50", "evidence.max_indeterminate", "at most 1", None),
    ("max_indeterminate: 0.5", "max_indeterminate: ‸half", "evidence.max_indeterminate", "a share", None),
    # units and versions
    ("  duration: 15s", "  duration: ‸15", "workload.duration", "lacks a unit", None),
    ("  duration: 15s", "  duration: ‸15 seconds", "workload.duration", "with its unit", None),
    ("  duration: 15s", "  duration: ‸0s", "workload.duration", "more than 0", None),
    ("  duration: 15s", "  duration: ‸100h", "workload.duration", "at most 24h", None),
    ("    linger: 5ms", "    linger: ‸5", "workload.producers.linger", "lacks a unit", None),
    ("    rate: 5000/s", "    rate: ‸5000", "workload.producers.rate", "5000/s", None),
    ("    rate: 5000/s", "    rate: ‸0/s", "workload.producers.rate", "above 0", None),
    ("    rate: 5000/s", "    rate: ‸~", "workload.producers.rate", "not nothing", None),
    ("    value_size: 100B", "    value_size: ‸100", "workload.producers.value_size", "lacks a unit", None),
    ("    value_size: 100B", "    value_size: ‸20B", "workload.producers.value_size", "too few", None),
    ("  heap: 256MB", "  heap: ‸1MB", "cluster.heap", "at least", None),
    ('  kafka: "4.3.1"', "  kafka: ‸4.10", "cluster.kafka", "the number 4.1;", None),
    ('  kafka: "4.3.1"', '  kafka: ‸"4.3"', "cluster.kafka", "full version", None),
    ('  kafka: "4.3.1"', '  kafka: ‸"2.8.0"', "cluster.kafka",
     "2.8.0 is not supported: 3.9 is the oldest line that is", None),
    # feature levels
    ("  heap: 256MB", "  features: {group.version: ‸2}", "cluster.features[group.version]", "levels 0 to 1", None),
    ("  heap: 256MB", "  features: {‸group.versio: 0}", "cluster.features[group.versio]", "feature", "group.version"),
    ("  heap: 256MB", "  features: {group.version: ‸on}", "cluster.features[group.version]", "a whole number", None),
    ("  heap: 256MB", "  features: {‸kraft.version: 1}", "cluster.features[kraft.version]", "quorum is formed", None),
    ("workload.producers.acks: [0, 1, all]", "‸cluster.features: [0]", "matrix[cluster.features]", "name one", None),
    # settings
    ("    broker.session.timeout.ms: 6000", "    broker.session.timeout.ms: ‸[1]",
     "cluster.config[broker.session.timeout.ms]", "a single value", None),
    ("    broker.session.timeout.ms: 6000", "    ‸a b: 6", "cluster.config[a b]", "name of a setting", None),
    ("    broker.session.timeout.ms: 6000", '    a: ‸"x\\ny"', "cluster.config.a", "one line", None),
    ("    broker.session.timeout.ms: 6000", '    ‸"a\\nb": 1', "cluster.config[a\ufffdb]", "name of a", None),
    ("    broker.session.timeout.ms: 6000", "    a: ‸~", "cluster.config.a", "an empty one is written ''", None),
    ("    topics: [orders]", "    topics: ‸[]", "workload.producers.topics", "at least 1, not one of 0", None),
    ("description: all there is", f"description: ‸{'x' * 10001}", "description", "at most 10000 characters", None),
    ("    broker.session.timeout.ms: 6000", "    ‸node.id: 6", "cluster.config[node.id]", "itself", None),
    ("    2: {num", "    ‸4: {num", "cluster.broker_config.4", "broker 4 does not exist", None),
    ("    2: {num", "    ‸two: {num", "cluster.broker_config.two", "whole number", None),
    ("      min.insync.replicas: 2", "      ‸min.insync.replica: 2",
     "topics.orders.config[min.insync.replica]", "no topic setting", "min.insync.replicas"),
    ("    linger: 5ms", "    config: {‸linger.ms: 5}", "workload.producers.config[linger.ms]", "field linger", None),
    # what does not fit together
    ("    replication_factor: 3", "    replication_factor: ‸4",
     "topics.orders.replication_factor", "need as many brokers", None),
    ("[[1, 2], [2, 3]]", "[[1, 2], ‸[2, 4]]", "topics[audit.log].assignment[2]", "broker 4 does not exist", None),
    ("[[1, 2], [2, 3]]", "[[1, 2], ‸[2, 2]]", "topics[audit.log].assignment[2]", "one replica", None),
    ("[[1, 2], [2, 3]]", "[[1, 2], ‸[2]]", "topics[audit.log].assignment[2]", "replication factor is 2", None),
    ("{assignment: [[1, 2], [2, 3]]}", "{partitions: 3, assignment: ‸[[1, 2]]}",
     "topics[audit.log].assignment", "there are 3", None),
    ("  audit.log:", "  audit_log: {replication_factor: 2}\n  ‸audit.log:", "topics[audit.log]", "collide", None),
    ("  audit.log:", "  ‸audit/log:", "topics[audit/log]", "topic's name", None),
    ("    topics: [orders]", "    topics: [‸order]", "workload.producers.topics", "does not exist", "orders"),
    ("    topics: [orders]", "    config: {‸acks: 1}", "workload.producers.config.acks", "the field acks", None),
    ("    linger: 5ms", "    linger: ‸31s", "workload.producers.linger", "shorter", None),
    ("  isr_size: 2", "  isr_size: ‸3", "evidence.isr_size", "'audit.log' has 2 replicas", None),
    # faults
    ("  - pause: {", "  - ‸pasue: {", "faults[1].pasue", "unknown fault kind", "pause"),
    ("  - pause: {", "  - ‸tickle: {", "faults[1].tickle", "expected one of", None),
    ("{target: followers(orders/0)}", "‸~", "faults[1].pause", "in braces", None),
    ("{target: followers", "{‸tagret: followers", "faults[1].pause.tagret", "unknown field", "target"),
    ("pause: {target: followers(orders/0)}", "‸pause: {}", "faults[1].pause.target", "missing", None),
    ("target: followers(orders/0)", "target: ‸folowers(orders/0)", "faults[1].pause.target", "'followers'?", None),
    ("target: followers(orders/0)", "target: ‸followers(order/0)", "faults[1].pause.target", "topic", "orders"),
    ("target: followers(orders/0)", "target: ‸followers(orders/3)", "faults[1].pause.target", "0 to 2", None),
    ("target: followers(orders/0)", "target: ‸followers", "faults[1].pause.target", "needs a partition", None),
    ("target: followers(orders/0)", "target: ‸minority(1)", "faults[1].pause.target", "in brackets", None),
    ("target: followers(orders/0)", "target: ‸broker(4)", "faults[1].pause.target", "are 1 to 3", None),
    ("target: followers(orders/0)", "target: ‸controller(1)", "faults[1].pause.target", "are 101", None),
    ("target: followers(orders/0)", "target: ‸rack(c)", "faults[1].pause.target",
     "rack(c) does not exist; the racks are a: 1, 3, 101; b: 2", None),
    ("target: followers(orders/0)", "target: ‸rack(leader(orders/9))", "faults[1].pause.target", "0 to 2", None),
    ("target: followers(orders/0)", "target: ‸[rack(a), broker(4)]", "faults[1].pause.target", "are 1 to 3", None),
    ("target: followers(orders/0)", "target: ‸[broker(1), king]", "faults[1].pause.target", "unknown role", None),
    ("target: followers(orders/0)", "target: ‸[]", "faults[1].pause.target", "expected a role in the list", None),
    ("target: followers(orders/0)", "target: ‸[broker(1), 4]", "faults[1].pause.target", "expected a role", None),
    ("restart: {target: broker}", "decommission: {target: ‸rack(a)}", "faults[3].decommission.target",
     "rack(a) has controllers too, and a controller holds no partitions: list brokers, such as [broker(1)", None),
    ("restart: {target: broker}", "out_of_memory: {target: ‸[broker(1), controller]}",
     "faults[3].out_of_memory.target", "controller takes no requests of clients: aim at brokers", None),
    ("pause: {target: followers(orders/0)}", "remove_controller: {target: ‸[controller(101), controller]}",
     "faults[1].remove_controller.target", "is not one controller: aim at controller or controller(102)", None),
    ("pause: {target: followers(orders/0)}", "flip_bits: ‸{target: rack(a), partition: orders/0}",
     "faults[1].flip_bits", "a controller holds no partitions: list brokers", None),
    ("pause: {target: followers(orders/0)}", "hold_request: {link: ‸rack(a) -> rack(b), api: Fetch}",
     "faults[1].hold_request.link", "rack(a) has brokers and controllers", None),
    ("  racks: [a, b]", "  ‸controller_racks: [a, b]", "cluster.controller_racks", "add racks: [a, b]", None),
    ("  racks: [a, b]", "  racks: [a, b]\n  combined: true\n  ‸controller_racks: [a]", "cluster.controller_racks",
     "is a broker, too", None),
    ("target: followers(orders/0)", "target: ‸3", "faults[1].pause.target", "expected a role", None),
    ("when: acked >= 2000", "when: ‸aked >= 2000", "faults[1].when", "'acked'?", None),
    ("when: acked >= 2000", "when: ‸acked => 2000", "faults[1].when", "expected a condition", None),
    ("when: acked >= 2000", "when: ‸isr == 1", "faults[1].when", "isr(orders/0) == 1", None),
    ("when: acked >= 2000", "when: ‸isr(orders/0) == 4", "faults[1].when", "never holds", None),
    ("when: acked >= 2000", "when: ‸lag(orders/9) > 4", "faults[1].when", "0 to 2", None),
    ("when: acked >= 2000", "when: ‸acked(nope/0) > 4", "faults[1].when", "does not exist", None),
    ("    at: 20s", "    at: 20s\n    ‸when: acked > 1", "faults[3].when", "one trigger", None),
    ("    at: 20s", "    at: 20s\n    ‸at_latest: 30s", "faults[3].at_latest", "goes with 'when'", None),
    ("    at: 20s", "    at: ‸20", "faults[3].at", "lacks a unit", None),
    ("    at: 20s", "    at: 20s\n    ‸for: 1s", "faults[3].for", "ends by itself", None),
    ("    for: 2s", "    ‸restart_after: 2s", "faults[1].restart_after", "a pause has no", "for"),
    ("    for: 2s", "    ‸fro: 2s", "faults[1].fro", "unknown field of a fault", "for"),
    ("    for: 2s", "    for: ‸0s", "faults[1].for", "more than 0, not the text '0s'", None),
    ("    for: 2s", "    for: 2s\n    ‸kill: {target: broker}", "faults[1].kill", "one kind", None),
    ("      target: leader(orders/0)", "      target: leader(orders/0)\n      ‸restart_after: 5s",
     "faults[2].kill.restart_after", "stands beside", None),
    ("{fault: 1, by: 1s}", "{fault: ‸2, by: 1s}", "faults[2].after.fault", "wait for itself", None),
    ("{fault: 1, by: 1s}", "{fault: ‸3, by: 1s}", "faults[2].after.fault", "one before it", None),
    ("{fault: 1, by: 1s}", "{fault: ‸4, by: 1s}", "faults[2].after.fault", "there are 3 faults", None),
    ("{fault: 1, by: 1s}", "{fault: ‸0, by: 1s}", "faults[2].after.fault", "does not exist", None),
    ("{fault: 1, by: 1s}", "{fault: ‸pause, by: 1s}", "faults[2].after.fault", "not the text 'pause'", None),
    ("{fault: 1, by: 1s}", "{fault: 1, by: ‸1}", "faults[2].after.by", "lacks a unit", None),
    ("{fault: 1, by: 1s}", "{fault: 1, ‸buy: 1s}", "faults[2].after.buy", "unknown field", "by"),
    ("    after: {fault: 1, by: 1s}", "    ‸after: {by: 1s}", "faults[2].after.fault", "missing", None),
    ("  - restart: {target: broker}\n    at: 20s", "  - ‸hello", "faults[3]", "expected a fault", None),
    ("  - restart: {target: broker}\n    at: 20s", "  - ‸at: 3s", "faults[3]", "has no kind", None),
    ("  - restart: {target: broker}\n    at: 20s", "  - ‸restart: {target: broker}", "faults[3]", "when does", None),
    # matrix
    ("  workload.producers.acks: [0, 1, all]", "  ‸workload.producers.ack: [0]",
     "matrix[workload.producers.ack]", "has no field 'ack'", "workload.producers.acks"),
    ("  workload.producers.acks: [0, 1, all]", "  ‸acks: [0]", "matrix.acks", "below", "workload.producers.acks"),
    ("  workload.producers.acks: [0, 1, all]", "  ‸workload.producers: [0]",
     "matrix[workload.producers]", "group", None),
    ("  workload.producers.acks: [0, 1, all]", "  workload.producers.acks: [0, ‸2, all]",
     "workload.producers.acks", "expected 0, 1 or all", None),
    ("  workload.producers.acks: [0, 1, all]", "  workload.producers.acks: ‸all",
     "matrix[workload.producers.acks]", "expected a list", None),
    ("  workload.producers.acks: [0, 1, all]", "  workload.producers.acks: ‸[]",
     "matrix[workload.producers.acks]", "empty list", None),
    ("  workload.producers.acks: [0, 1, all]", "  workload.producers.acks: [0, 1, all, ‸all]",
     "matrix[workload.producers.acks][4]", "same name", None),
    ("  workload.producers.acks: [0, 1, all]", "  workload.producers.acks: [0, 1, all, ‸[2]]",
     "matrix[workload.producers.acks][4]", "single value", None),
    ("    - 1\n    - 2\n", "    - 1\n    - 2\n  ‸topics.orders.config.min.insync.replicas: [1]\n",
     "matrix[topics.orders.config.min.insync.replicas]", "varied twice", None),
    ("    - 1\n    - 2\n", "    - 1\n  topics.orders.replication_factor: [3, ‸4]\n",
     "topics.orders.replication_factor", "need as many brokers", None),
    ("    - 1\n    - 2\n", "    - 1\n  workload.producers.idempotence: [false, ‸true]\n",
     "workload.producers.idempotence", "idempotence needs acks: all", None),
    ("  topics.orders.config[min.insync.replicas]:\n", "  ‸topics.oders.config[min.insync.replicas]:\n",
     "matrix[topics.oders.config[min.insync.replicas]]", "'oders' does not exist",
     "topics.orders.config[min.insync.replicas]"),
    ("    - 1\n    - 2\n", "    - 1\n  faults[1].for: [1s, ‸2]\n", "faults[1].for", "lacks a unit", None),
    ("    - 1\n    - 2\n", "    - 1\n  ‸faults[4].for: [1s]\n", "matrix[faults[4].for]", "no such fault", None),
    # expectations
    ("    lost: 0", "    ‸lots: 0", "expect[1].lots", "unknown quantity", "lost"),
    ("    lost: 0", '    ‸time_to(frist ack, fault 1): "< 6s"', "expect[1][time_to(frist ack, fault 1)]",
     "unknown quantity 'time_to(frist ack)'", "time_to(first ack)"),
    ("    lost: 0", '    ‸time_to(first ack): "< 6s"', "expect[1][time_to(first ack)]", "lacks 'fault N'", None),
    ("    lost: 0", '    ‸time_to(first ack, fault 9): "< 6s"', "expect[1][time_to(first ack, fault 9)]",
     "fault 9 does not exist; the last is fault 3", None),
    ("    lost: 0", '    longest_gap(produce): ‸"< 6"', "expect[1][longest_gap(produce)]", "with its unit", None),
    ("    lost: 0", '    isr(orders/0): ‸"< 2"', "expect[1][isr(orders/0)]", "a state over time", None),
    ("    lost: 0", "    ‸isr(orders/99): always > 1", "expect[1][isr(orders/99)]", "does not exist", None),
    ("    lost: 0", "    isr: ‸always > 1 by 3s", "expect[1].isr", "have a time by which", None),
    ("    lost: 0", '    elections: ‸"< 2 during fault 1"', "expect[1].elections", "is of a whole run", None),
    ("    lost: 0", '    ‸gaps(produce, above 1ms): 0', "expect[1][gaps(produce, above 1ms)]", "not told apart", None),
    ("    lost: 0", "    lost: ‸-1", "expect[1].lost", "expected a count", None),
    # expectations over repeats
    ("    lost: 0", '    latency(p99): ‸"maen < 6s"', "expect[1][latency(p99)]", "(did you mean 'mean'?)", None),
    ("    lost: 0", '    latency(p99): ‸"p95 < 6"', "expect[1][latency(p99)]", "with its unit", None),
    ("    lost: 0", '    isr(orders/0): ‸"p95 < 2"', "expect[1][isr(orders/0)]", "no one number in a run", None),
    ("    lost: 0", '    elections: ‸"mean < 2 during fault 1"', "expect[1].elections", "of a whole run", None),
    ("    lost: 0", '    ‸time_to(first ack, fault 9): "mean < 6s"', "expect[1][time_to(first ack, fault 9)]",
     "fault 9 does not exist", None),
    ("given: {acks: all}\n    lost: 0", 'latency(p99): ‸"mean of acks=2 over acks=1 < 2"', "expect[1][latency(p99)]",
     "no case has acks=2; there is 0, 1, all", None),
    ("given: {acks: all}\n    lost: 0", 'latency(p99): ‸"mean of akcs=0 over acks=1 < 2"', "expect[1][latency(p99)]",
     "unknown setting 'akcs'", "acks"),
    ("    lost: 0", '    latency(p99): ‸"mean of acks=all over acks=1 < 2"', "expect[1][latency(p99)]",
     "no case has acks=1; there is all", None),
    ("given: {acks: all}\n    lost: 0", 'latency(p99): ‸"mean of acks=0 over acks=0 < 2"', "expect[1][latency(p99)]",
     "held beside itself", None),
    ("given: {acks: all}\n    lost: 0",
     'latency(p99): ‸"mean of acks=0 over min.insync.replicas=2 < 2"', "expect[1][latency(p99)]",
     "name the other settings, too", None),
    ("given: {acks: all}\n    lost: 0", 'latency(p99): ‸"mean of safe over acks=0 < 2"', "expect[1][latency(p99)]",
     "'safe' is no name of settings that go together", None),
    ("given: {acks: all}\n    lost: 0", 'latency(p99): ‸"max of acks=1 over acks=0 < 2"', "expect[1][latency(p99)]",
     "not held beside another", None),
    ("    lost: 0", "    lost: ‸some", "expect[1].lost", "expected a count", None),
    ("    lost: 0", '    lost: ‸"< 0"', "expect[1].lost", "no count is below 0", None),
    ("    lost: 0", "    phantom: ‸1", "expect[1].phantom", "only 0 can be expected", None),
    ("    lost: 0", '    rewound: ‸"<= 3"', "expect[1].rewound", "forbidden in every configuration", None),
    ("    lost: 0", '    skipped: ‸">= 0"', "expect[1].skipped", "forbidden in every configuration", None),
    ("given: {acks: all}", "given: {acks: ‸2}", "expect[1].given.acks", "no possible value", None),
    ("given: {acks: all}", "given: {‸akcs: all}", "expect[1].given.akcs", "unknown setting", "acks"),
    ("given: {acks: all}", "given: {acks: all, min.insync.replicas: ‸3}",
     "expect[1].given[min.insync.replicas]", "no case has min.insync.replicas=3; there is 1, 2", None),
    ("given: {acks: all}", "given: {‸config: all}", "expect[1].given.config", "unknown setting", None),
    ('    lost: "> 0"', '    lost: "> 0"\n  - lost: ‸0', "expect[3].lost", "contradicts", None),
    ("  - given: {acks: all}\n    lost: 0", "  - ‸given: {acks: all}", "expect[1]", "nothing is expected", None),
]
# fmt: on


@pytest.mark.parametrize(("old", "new", "path", "message", "suggestion"), CASES)
def test_where_and_what(
    load_text: Load, changed: Changed, old: str, new: str, path: str, message: str, suggestion: str | None
) -> None:
    text, line, column = changed(old, new)
    with pytest.raises(InvalidExperiment) as caught:
        load_text(text)
    shown = "\n" + str(caught.value)
    here = [p for p in caught.value.problems if (p.line, p.column, p.path) == (line, column, path)]
    assert here, f"expected {line}:{column}: {path}{shown}"
    assert any(message in p.message and p.suggestion == suggestion for p in here), shown
    assert len(caught.value.problems) == 1, shown


def test_all_at_once(load_text: Load, good: str) -> None:
    """Mistakes of every kind in one file are all reported, in file order."""
    text = (
        good.replace("  brokers: 3", "  brokers: three")
        .replace("value_size", "valuesize")
        .replace("leader(orders/0)", "leader(ordes/0)")
        .replace("at: 20s", "at: 20")
        .replace("[0, 1, all]", "[0, 1, most]")
        .replace('lost: "> 0"', "lots: 0")
        .replace("seed: 7", "sede: 7")
    )
    with pytest.raises(InvalidExperiment) as caught:
        load_text(text)
    assert [problem.path for problem in caught.value.problems] == [
        "cluster.brokers",
        "workload.producers.valuesize",
        "workload.producers.acks",
        "faults[2].kill.target",
        "faults[3].at",
        "expect[2].lots",
        "sede",
    ]
    assert str(caught.value).count("\n") == 6 + 2 * 7, "each with its line and a caret"


def test_form_of_a_message(load_text: Load, good: str) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text(good.replace("  duration: 15s", "  duratoin: 15s"))
    (problem,) = caught.value.problems
    assert str(problem) == (
        f"{problem.file}:33:3: workload.duratoin: unknown field 'duratoin' (did you mean 'duration'?)"
    )


def test_cell_that_breaks_a_field_elsewhere(load_text: Load, good: str) -> None:
    """A problem that only some cells have is shown at the matrix's value, with the field that it breaks."""
    with pytest.raises(InvalidExperiment) as caught:
        load_text(good.replace("    - 1\n    - 2\n", "    - 1\n  cluster.brokers: [2, 3]\n"))
    assert {(p.line, p.column, p.path) for p in caught.value.problems} == {
        (38, 21, "topics.orders.replication_factor"),
        (38, 21, "topics[audit.log].assignment[2]"),
    }
    assert all("(with cluster.brokers: 2)" in p.message for p in caught.value.problems)


def test_missing_name_and_topics(load_text: Load) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text("repeat: 1\n")
    assert [(p.line, p.path) for p in caught.value.problems] == [(1, "name"), (1, "topics")]


def test_a_single_topic_with_a_bad_name_is_one_mistake(load_text: Load) -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load_text("name: a\ntopics: {'a b': {}}\n")
    assert [problem.path for problem in caught.value.problems] == ["topics[a b]"]


def test_ambiguous_setting(load_text: Load) -> None:
    text = """\
name: n
topics: {a: {}, b: {}}
matrix:
  topics.a.config[retention.ms]: [1, 2]
  topics.b.config[retention.ms]: [1, 2]
expect:
  - {given: {retention.ms: 1}, lost: 0}
"""
    with pytest.raises(InvalidExperiment) as caught:
        load_text(text)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (7, 14)
    assert "ambiguous: topics.a.config[retention.ms] or topics.b.config[retention.ms]" in problem.message


def test_too_many_combinations(load_text: Load) -> None:
    values = list(range(1, 41))
    text = (
        f"name: n\ntopics: {{t: {{}}}}\nmatrix:\n  topics.t.partitions: {values}\n  cluster.heap: {values}\n"
    )
    with pytest.raises(InvalidExperiment, match="1600 combinations are too many"):
        load_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("".join(f"k{i}: 1\n" for i in range(5000)), "and more; only 100 problems are shown"),
        ("a: 1\n" * 5000, "and more; only 100 problems are shown"),
        ("expect:\n" + "  - {lost: 0}\n" * 201, "expect: expected a list of at most 200, not one of 201"),
        ("faults:\n" + "  - {kill: {target: broker}, at: 1s}\n" * 201, "201 faults are too many"),
        (
            "matrix:\n" + "".join(f"  topics.t.config[a{i}]: [1]\n" for i in range(21)),
            "21 settings are too many",
        ),
    ],
    ids=["unknown fields", "keys twice", "expectations", "faults", "axes"],
)
def test_bounds(load_text: Load, text: str, message: str) -> None:
    """A file that is wrong in thousands of places, or enormous, is refused in a moment."""
    begin = time.process_time()
    with pytest.raises(InvalidExperiment, match=message):
        load_text("name: n\ntopics: {t: {}}\n" + text)
    assert time.process_time() - begin < 5
