package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// PullEntry returns the entry of pull_images by which jobs of all users may have the container image of a valid
// reference fetched: it is named, or lies below one that ends in a slash.
func (a Agent) PullEntry(reference string) (entry string, ok bool) {
	for _, p := range a.PullImages {
		if reference == p || strings.HasSuffix(p, "/") && strings.HasPrefix(reference, p) {
			return p, true
		}
	}
	return "", false
}

// PullDirectory returns the directory below which an entry of pull_images allows all; "" of other entries.
func PullDirectory(entry string) string {
	scheme, path, _ := strings.Cut(entry, ":")
	if !strings.HasSuffix(path, "/") || !slices.Contains([]string{"oci-layout", "dir", "sif"}, scheme) {
		return ""
	}
	return strings.TrimRight(path, "/")
}

// PullHost returns the host of the registry that an entry of pull_images names, without its port; "" of other entries.
func PullHost(entry string) string {
	u, err := url.Parse(entry)
	if err != nil {
		return ""
	}
	return u.Hostname()
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

// unusedImages reads after which time without a VM a copy of an image is removed.
func unusedImages(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d != 0 && d < minUnusedImages {
		err = fmt.Errorf("less than %s", minUnusedImages)
	}
	if err != nil {
		return 0, fmt.Errorf("unused_images: %q: %w", text, err)
	}
	return d, nil
}

// minUnusedImages keeps a host from fetching over and over what it removes.
const minUnusedImages = time.Hour
