"""Building extensions against the CANN toolkit, which is not here."""

from torch_cann._refused import refused

globals().update(refused(__name__))
