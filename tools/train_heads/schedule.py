"""The course of training: how long it takes, how large its steps are, and when heads are saved."""

import glob
import math
import time

import numpy
import torch


class Schedule:
    """Warms up over 50 steps, then falls along a cosine to a fiftieth. Minutes are of the processor's time for each
    thread: others on the machine, or being stopped for a while, make training last longer and not worse."""

    def __init__(self, epochs, minutes, threads):
        self.epochs, self.minutes, self.threads = epochs, minutes, threads
        self.began, self.step = time.process_time(), 0

    def seconds(self):
        return (time.process_time() - self.began) / self.threads

    def done(self, per_epoch):
        """0 at the beginning, 1 at the end."""
        if self.minutes is not None:
            return self.seconds() / (60 * self.minutes)
        return self.step / (self.epochs * per_epoch)

    def factor(self, per_epoch):
        """What the learning rate is multiplied with for the next step; None: it is over."""
        done = self.done(per_epoch)
        if done >= 1:
            return None
        self.step += 1
        return min(1, self.step / 50) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))

    def seconds_per_step(self):
        return self.seconds() / max(1, self.step)


class LearntRows:
    """Rows of the target's output head over which distributions are compared."""

    def __init__(self, head, vocabulary, frequent, others, bf16):
        self.head = head.bfloat16() if bf16 else head
        self.frequent = torch.from_numpy(frequent)
        self.rest = torch.from_numpy(numpy.setdiff1d(vocabulary, frequent))
        self.others = min(others, len(self.rest))

    def draw(self):
        """Those of the next step."""
        others = self.rest[torch.randperm(len(self.rest))[:self.others]]
        return self.head[torch.cat([self.frequent, others])]


def files(patterns):
    """Those that there are now, in order."""
    return sorted(path for pattern in patterns for path in glob.glob(pattern))


def add_flags(parser, epochs, rate):
    parser.add_argument("--target", required=True, help="GGUF file of the model")
    parser.add_argument("--train", required=True, nargs="+",
                        help="dumps to learn from, or patterns: looked for anew in each epoch")
    parser.add_argument("--heldout", required=True, nargs="+", help="dumps to measure on, of greedy answers")
    parser.add_argument("--output", required=True, help="safetensors file to write")
    parser.add_argument("--vocabulary", type=int, default=5120, help="tokens that may be guessed")
    parser.add_argument("--learn-vocabulary", type=int, default=4096,
                        help="tokens over which distributions are compared at every step of learning")
    parser.add_argument("--learn-others", type=int, default=1024, help="further ones, drawn anew for each step")
    parser.add_argument("--epochs", type=float, default=epochs)
    parser.add_argument("--minutes", type=float, help="so long, in processor time, instead of so many epochs")
    parser.add_argument("--rate", type=float, default=rate)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="products in bfloat16")
    parser.add_argument("--begin", help="head file to go on from")
    parser.add_argument("--seed", type=int, default=1)


def train(training_of, args):
    """Epoch after epoch of training_of(args), which has epoch(), save(when) and look()."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    training, epoch = training_of(args), 0
    while training.epoch():
        epoch += 1
        if epoch % 2 == 0:
            training.save(f"epoch {epoch}")
        training.look()
    training.save("at the end")
