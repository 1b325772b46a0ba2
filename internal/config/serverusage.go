package config

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

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
