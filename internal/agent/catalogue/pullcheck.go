package catalogue

import (
	"errors"
	"fmt"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/rootpath"
)

// CheckPulls returns why entries of pull_images give users nothing: users may write to what root would read.
func CheckPulls(host rootpath.Resolver, entries []string) (faults []string) {
	for _, entry := range entries {
		path := config.PullDirectory(entry)
		if r, err := container.Parse(entry); path == "" && err == nil {
			path = r.Path()
		}
		if path == "" {
			continue // of a registry
		}
		if _, err := host.Resolve(path, ""); errors.Is(err, rootpath.ErrUnsafe) {
			faults = append(faults, fmt.Sprintf("pull_images: %q gives users nothing: %v", entry, err))
		}
	}
	return faults
}
