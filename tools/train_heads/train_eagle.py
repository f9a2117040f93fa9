#!/usr/bin/env python3
"""Trains an EAGLE-1 head for a model from what `kvasir dump-hidden` wrote (point "output"), on a CPU."""

import argparse

import numpy
import torch
from safetensors.torch import load_file, save_file

import eagle
import eagle_start
from hidden_dump import Stream, draft_vocabulary, recipe
from schedule import LearntRows, Schedule, add_flags, files, train
from target import Target


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser, epochs=10, rate=1e-3)
    parser.add_argument("--steps", type=int, default=3, help="guesses of a chain that are learnt from at the end")
    parser.add_argument("--decay", type=float, default=0.7, help="how much less each further guess counts")
    parser.add_argument("--closeness", type=float, default=0.1, help="how much the distance of states counts")
    parser.add_argument("--batch", type=int, default=1024, help="tokens")
    return parser.parse_args()


def batches_of(stream, tokens, generator=None):
    """Lists of sequences of about equal length, of so many tokens together."""
    lengths = stream.ends - stream.starts
    likes = lengths if generator is None else lengths + torch.rand(len(lengths), generator=generator).numpy() * 16
    order = numpy.argsort(likes, kind="stable")
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


class Training:
    def __init__(self, args):
        self.args, self.target = args, Target(args.target)
        self.generator = torch.Generator().manual_seed(args.seed)
        self.look()
        sample = self.outputs[torch.randperm(len(self.outputs))[:20000]].float()
        self.model = eagle.Eagle(self.target, sample.std(0).clamp(min=1e-3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.rate, betas=(0.9, 0.95),
                                           weight_decay=0.02)
        heldout = Stream(files(args.heldout))
        outputs = torch.from_numpy(heldout.point("output"))
        self.held = [eagle.Batch(heldout, outputs, list_) for list_ in batches_of(heldout, 4096)]
        if args.begin is not None:
            self.model.take(load_file(args.begin))
        else:
            eagle_start.begin(self.model, lambda: (eagle.Batch(self.stream, self.outputs, list_)
                                                   for list_ in batches_of(self.stream, 8192)))
        self.schedule = Schedule(args.epochs, args.minutes, args.threads)
        self.save("at the beginning")

    def look(self):
        """Takes in the dumps that there are."""
        self.stream = Stream(files(self.args.train))
        chosen, self.share = draft_vocabulary(self.stream, self.args.vocabulary)
        self.vocabulary = torch.from_numpy(chosen)
        frequent, _ = draft_vocabulary(self.stream, self.args.learn_vocabulary)
        self.rows = LearntRows(self.target.head, chosen, frequent, self.args.learn_others, self.args.bf16)
        self.outputs = torch.from_numpy(self.stream.point("output"))

    def chain(self, lists):
        """How many guesses of each chain the next batch is learnt from: more of them the nearer the end."""
        more = torch.rand(1, generator=self.generator).item() < self.schedule.done(len(lists))
        return 1 + more * int(torch.randint(1, self.args.steps, (1,), generator=self.generator))

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
            batch = eagle.Batch(self.stream, self.outputs, sequences, answers_only)
            steps = self.chain(lists)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.bf16):
                loss = eagle.loss_of(self.model, batch, self.target, self.rows.draw(), steps, self.args.decay,
                                     self.args.closeness)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            if steps == 1:
                losses.append(loss.item())
        print(f"step {self.schedule.step}, {len(self.stream.tokens)} tokens: loss {numpy.mean(losses):.4f}, "
              f"{self.schedule.seconds_per_step():.2f} s a step", flush=True)
        return True

    def save(self, when):
        right, lengths = eagle.measure(self.model, self.held, self.target, self.vocabulary, 4)
        print(f"{when}: right {[f'{x:.3f}' for x in right]}, tokens a step {[f'{x:.3f}' for x in lengths]}, "
              f"vocabulary {self.share:.2%}", flush=True)
        tensors = {name: tensor.half().contiguous() for name, tensor in self.model.tensors().items()}
        tensors["d2t"] = (self.vocabulary - torch.arange(len(self.vocabulary))).to(torch.int64)
        target = self.target
        notes = recipe(self.args, self.stream, kind="eagle", heads=target.heads, kv_heads=target.kv_heads,
                       head_dim=target.head_dim, rope_base=target.rope_base, norm_eps=target.eps,
                       chain=self.args.steps, steps=self.schedule.step,
                       heldout_right=" ".join(f"{x:.3f}" for x in right),
                       heldout_tokens_per_step=" ".join(f"{x:.3f}" for x in lengths))
        save_file(tensors, self.args.output, metadata=notes)


if __name__ == "__main__":
    train(Training, parse())
