"""Where a function of one number is 0."""

import sys
from collections.abc import Callable


def root(function: Callable[[float], float], lo: float, hi: float) -> float:
    """Return where *function* rises through 0 on the way from *lo* to *hi*, which may lie below it.

    By interpolation where the last three values allow it, else by bisection (Chandrupatla 1997): mostly in ten values,
    to 16 digits or to what sixty bisections reach. What has risen at *lo* gives *lo*, what has not at *hi* gives *hi*.
    """
    near, far, at_near, at_far = hi, lo, function(hi), function(lo)
    if at_far >= 0 or at_near <= 0:
        return lo if at_far >= 0 else hi
    share, apart = 0.5, abs(hi - lo) * 2**-60
    while True:
        middle = near + share * (far - near)
        value = function(middle)
        if (value > 0) == (at_near > 0):
            before, at_before = near, at_near
        else:
            before, at_before, far, at_far = far, at_far, near, at_near
        near, at_near = middle, value
        best = near if abs(at_near) < abs(at_far) else far
        least = (2 * sys.float_info.epsilon * abs(best) + apart) / abs(far - near)
        if value == 0 or least > 0.5:
            return best
        width, height = (near - far) / (before - far), (at_near - at_far) / (at_before - at_far)
        share = 0.5
        if height**2 < width and (1 - height) ** 2 < 1 - width:
            share = at_near / (at_far - at_near) * at_before / (at_far - at_before)
            share += (before - near) / (far - near) * at_near / (at_before - at_near) * at_far / (at_before - at_far)
        share = min(1 - least, max(least, share))
