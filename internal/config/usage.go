package config

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

// UsageOfSite is what a server does with records of usage.
type UsageOfSite struct {
	KeepDays int               `toml:"keep_days"` // 0: for ever
	MaskDays int               `toml:"mask_days"` // after which they name nobody any more; 0: never
	VOs      map[string]string `toml:"vos"`       // FQANs by patterns of projects and accounts
}

const maxUsageDays = 36500

func (u UsageOfSite) check() error {
	for key, days := range map[string]int{"keep_days": u.KeepDays, "mask_days": u.MaskDays} {
		if days < 0 || days > maxUsageDays {
			return fmt.Errorf("usage.%s: %d is not between 0 and %d", key, days, maxUsageDays)
		}
	}
	for pattern, fqan := range u.VOs {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("usage.vos: invalid pattern %q", pattern)
		}
		if !strings.HasPrefix(fqan, "/") || len(fqan) < 2 || strings.ContainsAny(fqan, " \n\r\t") {
			return errors.New("usage.vos." + pattern + ": write a VO with its group and role as " +
				"/atlas/Role=production")
		}
	}
	return nil
}

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
