package config

import (
	"fmt"
	"slices"
	"strings"
)

// MayPull reports whether jobs of all users may have the container image of a valid reference fetched: it is named, or
// lies below one that ends in a slash.
func (a Agent) MayPull(reference string) bool {
	return slices.ContainsFunc(a.PullImages, func(p string) bool {
		return reference == p || strings.HasSuffix(p, "/") && strings.HasPrefix(reference, p)
	})
}

// checkPull refuses what would let everybody read what only root may.
func checkPull(images []string) error {
	for _, p := range images {
		scheme, rest, ok := strings.Cut(p, ":")
		known := slices.Contains([]string{"oci", "oci+http", "oci-layout", "dir", "sif"}, scheme)
		if !ok || strings.Trim(rest, "/") == "" || !known {
			return fmt.Errorf("pull_images: %q: give references of container images, or how some begin up to a slash, as "+
				"oci://REGISTRY/", p)
		}
	}
	return nil
}
