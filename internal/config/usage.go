package config

import (
	"fmt"
	"time"
)

// minUsageKeep is long enough for a server to be away over a weekend.
const minUsageKeep = 72 * time.Hour

// usageKeep reads for how long a host keeps records of usage.
func usageKeep(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d < minUsageKeep {
		err = fmt.Errorf("less than %v", minUsageKeep)
	}
	if err != nil {
		return 0, fmt.Errorf("usage_keep: %q: %w", text, err)
	}
	return d, nil
}
