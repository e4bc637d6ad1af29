"""Every await of the loop: accepting runs, driving them, their log, cancelling, taking over what others left."""
