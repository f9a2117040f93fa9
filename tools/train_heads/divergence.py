"""The loss of both trainers."""

import torch


class Divergence(torch.autograd.Function):
    """Mean cross entropy of the tokens that states [n, width] name through rows [tokens, width] against wanted
    [n, tokens]; its gradient is made on the way. Products are in the type of the rows."""

    @staticmethod
    def forward(ctx, states, rows, wanted):
        logs = torch.log_softmax((states.to(rows.dtype) @ rows.T).float(), -1)
        loss = -(logs * wanted).sum() / max(1, len(states))
        ctx.save_for_backward((logs.exp_().sub_(wanted).to(rows.dtype) @ rows).float() / max(1, len(states)))
        return loss

    @staticmethod
    def backward(ctx, by):
        return ctx.saved_tensors[0] * by, None, None


@torch.no_grad()
def said_by(outputs, rows):
    """The probabilities that a target with these output states [.., width] gives to the tokens of these rows."""
    return torch.softmax((outputs.to(rows.dtype) @ rows.T).float(), -1)
