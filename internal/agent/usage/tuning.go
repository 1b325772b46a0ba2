package usage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/tuning"
)

// Audit asks the tuning audit about this host, with the profile and the role that fit it. The digest is of which rules
// found something where: it is the same for as long as the host is tuned alike. What is found of single VMs is theirs.
func Audit(ctx context.Context) (digest string, findings int, err error) {
	tree, err := hosttree.Live(ctx)
	if err != nil {
		return "", 0, err
	}
	defer tree.Close()
	h, err := hostfacts.Read(tree)
	if err != nil {
		return "", 0, err
	}
	role := tuning.DefaultRole(h)
	r, err := tuning.Audit(h, tuning.Choose(h, role), role, tuning.Options{})
	if err != nil {
		return "", 0, err
	}
	var found []string
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if !strings.HasPrefix(f.Where, "VM ") {
				found = append(found, f.Rule+" "+f.Where)
			}
		}
	}
	slices.Sort(found)
	sum := sha256.Sum256([]byte(strings.Join(found, "\n")))
	return hex.EncodeToString(sum[:6]), len(found), nil
}
