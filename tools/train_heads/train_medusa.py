#!/usr/bin/env python3
"""Trains Medusa heads for a model from what `kvasir dump-hidden` wrote (point "output"), on a CPU."""

import argparse
import math

import torch
from safetensors.torch import load_file, save_file

import medusa
from hidden_dump import Stream, draft_vocabulary, recipe
from schedule import LearntRows, Schedule, add_flags, files, train
from target import Target


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser, epochs=6, rate=1e-3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2, help="residual blocks of a head")
    parser.add_argument("--batch", type=int, default=8, help="spans of 128 tokens")
    return parser.parse_args()


class Training:
    def __init__(self, args):
        self.args, self.target = args, Target(args.target)
        self.model = medusa.Medusa(self.target.width, args.heads, args.layers)
        if args.begin is not None:
            named = load_file(args.begin)
            with torch.no_grad():
                for name, tensor in self.model.tensors().items():
                    tensor.copy_(named[name])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.rate, betas=(0.9, 0.95),
                                           weight_decay=0.01)
        self.schedule = Schedule(args.epochs, args.minutes, args.threads)
        self.heldout = Stream(files(args.heldout))
        self.held = torch.from_numpy(self.heldout.point("output"))
        self.look()

    def look(self):
        """Takes in the dumps that there are."""
        self.stream = Stream(files(self.args.train))
        chosen, self.share = draft_vocabulary(self.stream, self.args.vocabulary)
        self.vocabulary = torch.from_numpy(chosen)
        frequent, _ = draft_vocabulary(self.stream, self.args.learn_vocabulary)
        self.rows = LearntRows(self.target.head, chosen, frequent, self.args.learn_others, self.args.bf16)
        self.hidden = torch.from_numpy(self.stream.point("output"))
        self.spans = medusa.Spans(self.stream, self.args.heads, 128)

    def epoch(self):
        """False when training is over."""
        weights = [0.8 ** i for i in range(self.args.heads)]
        order = self.spans.begins[torch.randperm(len(self.spans.begins))]
        steps, losses = math.ceil(len(order) / self.args.batch), []
        for first in range(0, len(order), self.args.batch):
            factor = self.schedule.factor(steps)
            if factor is None:
                return False
            for group in self.optimizer.param_groups:
                group["lr"] = self.args.rate * factor
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.bf16):
                loss = medusa.loss_of(self.model, self.hidden, self.rows.draw(), self.spans,
                                      order[first:first + self.args.batch], weights)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            losses.append(loss.item())
        print(f"step {self.schedule.step}, {len(self.stream.tokens)} tokens: loss {sum(losses) / len(losses):.4f}, "
              f"{self.schedule.seconds_per_step():.2f} s a step", flush=True)
        return True

    def save(self, when):
        right, lengths = medusa.measure(self.model, self.heldout, self.held, self.target.head[self.vocabulary],
                                        self.vocabulary, self.args.heads)
        print(f"{when}: right {[f'{x:.3f}' for x in right]}, tokens a step {[f'{x:.3f}' for x in lengths]}, "
              f"vocabulary {self.share:.2%}", flush=True)
        tensors = {name: tensor.half().contiguous() for name, tensor in self.model.tensors().items()}
        tensors["token_map"] = self.vocabulary.to(torch.int64)
        notes = recipe(self.args, self.stream, kind="medusa", heads=self.args.heads, layers=self.args.layers,
                       steps=self.schedule.step, heldout_right=" ".join(f"{x:.3f}" for x in right),
                       heldout_tokens_per_step=" ".join(f"{x:.3f}" for x in lengths))
        save_file(tensors, self.args.output, metadata=notes)


if __name__ == "__main__":
    train(Training, parse())
