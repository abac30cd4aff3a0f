"""The what-if explorer: pages that collect inputs and draw.  No model lives here; answers come from `simulator` and
`calibration` through `apps.ui.tasks`, the same calls as the command line makes.
"""
