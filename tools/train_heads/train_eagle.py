#!/usr/bin/env python3
"""Trains an EAGLE-3 head for a model from what `kvasir dump-hidden` wrote (three layers, and "output"), on a CPU."""

import argparse

import numpy
import torch
from safetensors.torch import save_file

import eagle
from hidden_dump import Stream, draft_vocabulary, recipe
from schedule import Schedule, add_flags, files, train
from target import Target


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser, epochs=6, rate=5e-4)
    parser.add_argument("--points", default="2,15,27", help="layers whose inputs are the features")
    parser.add_argument("--steps", type=int, default=3, help="guesses of a chain that are learnt from")
    parser.add_argument("--decay", type=float, default=0.8, help="how much less each further guess counts")
    parser.add_argument("--batch", type=int, default=1536, help="tokens")
    return parser.parse_args()


def batches_of(stream, tokens, generator=None):
    """Lists of sequences of about equal length, of so many tokens together."""
    lengths = stream.ends - stream.starts
    order = numpy.argsort(lengths, kind="stable")
    lists, now = [], []
    for sequence in order:
        if now and (len(now) + 1) * lengths[sequence] > tokens:
            lists.append(numpy.array(now))
            now = []
        now.append(sequence)
    lists.append(numpy.array(now))
    if generator is not None:
        lists = [lists[i] for i in torch.randperm(len(lists), generator=generator)]
    return lists


def features_of(stream, points):
    return torch.from_numpy(numpy.concatenate([stream.point(p) for p in points.split(",")], 1))


class Training:
    def __init__(self, args):
        self.args, self.target = args, Target(args.target)
        self.generator = torch.Generator().manual_seed(args.seed)
        self.look()
        sample = self.features[torch.randperm(len(self.features))[:20000]].float().clamp(-100, 100)
        self.model = eagle.Eagle(self.target, sample.std(0).clamp(min=1e-3),
                                 sample[:, -self.target.width:].std().item())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.rate, betas=(0.9, 0.95),
                                           weight_decay=0.01)
        self.schedule = Schedule(args.epochs, args.minutes)
        heldout = Stream(files(args.heldout))
        features, outputs = features_of(heldout, args.points), torch.from_numpy(heldout.point("output"))
        self.held = [eagle.Batch(heldout, features, outputs, list_) for list_ in batches_of(heldout, 4096)]

    def look(self):
        """Takes in the dumps that there are."""
        self.stream = Stream(files(self.args.train))
        chosen, self.share = draft_vocabulary(self.stream, self.args.vocabulary)
        self.vocabulary = torch.from_numpy(chosen)
        frequent = torch.from_numpy(draft_vocabulary(self.stream, self.args.learn_vocabulary)[0])
        self.rows = self.target.head[frequent].contiguous()
        self.features = features_of(self.stream, self.args.points)
        self.outputs = torch.from_numpy(self.stream.point("output"))

    def epoch(self):
        """False when training is over."""
        lists, losses = batches_of(self.stream, self.args.batch, self.generator), []
        for sequences in lists:
            factor = self.schedule.factor(len(lists))
            if factor is None:
                return False
            for group in self.optimizer.param_groups:
                group["lr"] = self.args.rate * factor
            answers_only = torch.rand(1, generator=self.generator).item() < 0.5
            batch = eagle.Batch(self.stream, self.features, self.outputs, sequences, answers_only)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.bf16):
                loss = eagle.loss_of(self.model, batch, self.target, self.rows, self.args.steps, self.args.decay)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
            losses.append(loss.item())
        print(f"step {self.schedule.step}, {len(self.stream.tokens)} tokens: loss {sum(losses) / len(losses):.4f}, "
              f"{self.schedule.seconds_per_step():.2f} s a step", flush=True)
        return True

    def save(self, when):
        right, lengths = eagle.measure(self.model, self.held, self.target, self.vocabulary, self.args.steps + 1)
        print(f"{when}: right {[f'{x:.3f}' for x in right]}, tokens a step {[f'{x:.3f}' for x in lengths]}, "
              f"vocabulary {self.share:.2%}", flush=True)
        tensors = {name: tensor.half().contiguous() for name, tensor in self.model.tensors().items()}
        tensors["d2t"] = (self.vocabulary - torch.arange(len(self.vocabulary))).to(torch.int64)
        target = self.target
        notes = recipe(self.args, self.stream, kind="eagle3", heads=target.heads, kv_heads=target.kv_heads,
                       head_dim=target.head_dim, rope_base=target.rope_base, norm_eps=target.eps,
                       aux_layers=self.args.points, chain=self.args.steps, steps=self.schedule.step,
                       heldout_right=" ".join(f"{x:.3f}" for x in right),
                       heldout_tokens_per_step=" ".join(f"{x:.3f}" for x in lengths))
        save_file(tensors, self.args.output, metadata=notes)


if __name__ == "__main__":
    train(Training, parse())
