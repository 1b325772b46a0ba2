package config

import (
	"maps"

	"github.com/grange-project/grange/internal/farm"
)

// With is a host's own configuration with what the server says in its place.
func (c Agent) With(s farm.Settings) Agent {
	if s.BootTimeout != 0 {
		c.BootTimeout = s.BootTimeout
	}
	if s.DefaultImage != "" {
		c.DefaultImage = s.DefaultImage
	}
	if len(s.Facts) > 0 {
		facts := maps.Clone(c.Facts)
		if facts == nil {
			facts = map[string]string{}
		}
		maps.Copy(facts, s.Facts)
		c.Facts = facts
	}
	return c
}
