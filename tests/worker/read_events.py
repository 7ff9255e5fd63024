#!/usr/bin/env python3
"""read_events.py FOLDER: what TensorBoard's own reader finds there, as JSON {tag: [[step, value], …]}."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={SCALARS: 0})
events.Reload()
print(json.dumps({tag: [[event.step, event.value] for event in events.Scalars(tag)] for tag in events.Tags()[SCALARS]}))
