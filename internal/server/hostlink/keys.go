package hostlink

import "github.com/grange-project/grange/internal/store"

// authorityKey is the key of the fleet's authorities. No host has such an ID.
const authorityKey = "the fleet's authorities"

// KeyOf is the key of a change for those who wait on a hub: the host whose wanted list it is part of, or authorityKey.
// all is set for what every host's wanted list has parts of: networks by their gateways, the settings of hosts,
// drains of file systems, the revision of the catalogue of images.
func KeyOf(c store.Change) (key string, all bool) {
	switch {
	case c.Kind == store.KindHost:
		return c.ID, false
	case c.Kind == store.KindSetting && c.ID == AuthoritySetting:
		return authorityKey, false
	}
	ofAll := c.ID == SettingHosts || c.ID == SettingFileSystems || c.ID == store.SettingCatalogue
	return c.Host, c.Kind == store.KindNetwork || c.Kind == store.KindSetting && ofAll
}
