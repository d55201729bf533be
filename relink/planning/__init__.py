"""From a wheel as read, a target and providers to a plan."""
