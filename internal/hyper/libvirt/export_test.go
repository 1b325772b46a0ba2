package libvirt

import "time"

// SetStartTimeout has starts time out earlier, until it is called again with what it returned.
func SetStartTimeout(d time.Duration) (before time.Duration) {
	before, startTimeout = startTimeout, d
	return before
}
