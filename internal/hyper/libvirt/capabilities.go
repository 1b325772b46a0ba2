package libvirt

import (
	"encoding/xml"
	"fmt"
	"os"
)

// hostOf takes from libvirt's capabilities what domains depend on.
func hostOf(text string) (host, [2]int, error) {
	var caps struct {
		Cells []struct {
			ID       int `xml:"id,attr"`
			Siblings []struct {
				ID    int `xml:"id,attr"`
				Value int `xml:"value,attr"`
			} `xml:"distances>sibling"`
		} `xml:"host>topology>cells>cell"`
		Guests []struct {
			Arch struct {
				Name     string `xml:"name,attr"`
				Emulator string `xml:"emulator"`
				Domains  []struct {
					Type string `xml:"type,attr"`
				} `xml:"domain"`
			} `xml:"arch"`
		} `xml:"guest"`
		Models []struct {
			Model  string `xml:"model"`
			Labels []struct {
				Type string `xml:"type,attr"`
				Text string `xml:",chardata"`
			} `xml:"baselabel"`
		} `xml:"host>secmodel"`
	}
	if err := xml.Unmarshal([]byte(text), &caps); err != nil {
		return host{}, [2]int{}, fmt.Errorf("read libvirt's capabilities: %w", err)
	}
	h := host{numa: len(caps.Cells) > 0, distance: map[int]map[int]int{}}
	for _, c := range caps.Cells {
		h.distance[c.ID] = map[int]int{}
		for _, s := range c.Siblings {
			h.distance[c.ID][s.ID] = s.Value
		}
	}
	for _, g := range caps.Guests {
		if g.Arch.Name != "x86_64" {
			continue
		}
		h.emulator = g.Arch.Emulator
		for _, d := range g.Arch.Domains {
			h.kvm = h.kvm || d.Type == "kvm"
		}
	}
	owner := [2]int{os.Getuid(), os.Getgid()}
	for _, m := range caps.Models {
		if m.Model != "dac" && m.Model != "none" {
			h.models = append(h.models, m.Model)
		}
		if m.Model != "dac" || len(m.Labels) == 0 {
			continue
		}
		h.label = m.Labels[0].Text
		var err error
		if owner[0], owner[1], err = parseLabel(h.label); err != nil {
			return host{}, owner, err
		}
	}
	if h.confines() {
		h.noProfile = cannotConfine()
	}
	return h, owner, nil
}
