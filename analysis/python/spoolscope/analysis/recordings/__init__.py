"""Two recordings of a service, before and after a change: what moved, and how sure that is.

Their calls are not the same ones, so that nothing is paired. ``windows`` cuts a recording into
windows of time, ``resampling`` draws them again for intervals, ``moved`` holds both against each
other, ``surroundings`` says what else differed.
"""
