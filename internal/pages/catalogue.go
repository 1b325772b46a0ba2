package pages

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server/images"
)

// imageTones are the classes of states of images.
var imageTones = map[farm.ImageState]string{farm.ImageActive: "good", farm.ImageDeprecated: "warn",
	farm.ImageWithdrawn: "bad"}

// imageRow is one image of the catalogue under one of its names.
type imageRow struct {
	Name, Digest, Path string
	State              farm.ImageState
	Tone               string
	Why                string // it is not active
	OS, Kind, Note     string
	Size, Needs        string
	Verdict            string
	Hosts              int
	Created            time.Time
}

func listImages(v *visit) error {
	all, err := v.Server.Images.List(v.ctx(), v.who)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b images.View) int { return cmp.Compare(a.Name, b.Name) })
	rows := make([]imageRow, 0, len(all))
	for _, i := range all {
		rows = append(rows, imageRowOf(i))
	}
	return v.show("images", "Images", "images", rows)
}

func imagePath(ref string) string { return "/images/" + url.PathEscape(ref) }

func imageRowOf(i images.View) imageRow {
	row := imageRow{Name: i.Name, Digest: i.Digest, Path: imagePath(cmp.Or(i.Name, i.Digest)), State: i.State,
		Tone: imageTones[i.State], Why: i.Reason, OS: i.OS, Kind: i.Kind, Note: i.Note, Size: size(i.Size),
		Verdict: i.Verdict, Hosts: i.Hosts, Created: i.Created}
	if i.Successor != "" {
		row.Why = strings.TrimPrefix(row.Why+"; ", "; ") + "use " + i.Successor
	}
	var needs []string
	if i.MinMemory > 0 {
		needs = append(needs, size(i.MinMemory)+" of memory")
	}
	if i.MinDisk > 0 {
		needs = append(needs, size(i.MinDisk)+" of disk")
	}
	row.Needs = strings.Join(needs, ", ")
	return row
}

// imagePage is one image, with all else that is known of it.
type imagePage struct {
	imageRow
	Names, Projects, Holders, VMs []string
	Jobs, MoreHolders             int
	Source, By                    string
	Properties                    []string
	Versions                      []imageVersion
}

// imageVersion is what the name has meant.
type imageVersion struct {
	Digest, Path, By string
	Since            time.Time
	Stored           bool
}

// holdersShown is how many hosts are named that have an image.
const holdersShown = 60

func showImage(v *visit) error {
	d, err := v.Server.Images.Show(v.ctx(), v.who, v.r.PathValue("image"))
	if err != nil {
		return err
	}
	page := imagePage{imageRow: imageRowOf(d.View), Names: d.Names, Projects: d.Projects, VMs: d.VMs, Jobs: d.Jobs,
		Holders: d.Holders[:min(len(d.Holders), holdersShown)], Source: d.Source, By: d.By}
	if page.Name == "" && len(d.Names) > 0 { // it was asked for by its digest
		page.Name = d.Names[0]
	}
	page.MoreHolders = len(d.Holders) - len(page.Holders)
	for name, value := range d.Properties {
		page.Properties = append(page.Properties, name+" = "+value)
	}
	slices.Sort(page.Properties)
	for _, one := range slices.Backward(d.Versions) {
		page.Versions = append(page.Versions, imageVersion{Digest: one.Digest, Path: imagePath(one.Digest), By: one.By,
			Since: one.Since, Stored: one.Stored})
	}
	return v.show("image", cmp.Or(page.Name, page.Digest), "images", page)
}

// networkRow is one network of the fleet.
type networkRow struct {
	Name, Kind, Addresses, Gateway, DNS, Domain, Hosts string
	Rules                                              []string
}

func listNetworks(v *visit) error {
	all, err := v.Server.Networks(v.ctx(), v.who)
	if err != nil {
		return err
	}
	rows := make([]networkRow, 0, len(all))
	for _, n := range all {
		rows = append(rows, networkRowOf(n))
	}
	return v.show("networks", "Networks", "networks", rows)
}

func networkRowOf(n farm.FleetNetwork) networkRow {
	row := networkRow{Name: n.Name, Kind: string(n.OnHost()), Gateway: n.Gateway, DNS: strings.Join(n.DNS, ", "),
		Domain: n.Domain, Hosts: strings.Join(n.Hosts, ", ")}
	var pools []string
	for _, p := range n.Addresses {
		pools = append(pools, p.String())
	}
	row.Addresses = strings.Join(pools, ", ")
	if n.Isolate {
		row.Rules = append(row.Rules, "its VMs of one host do not reach each other")
	}
	if n.Closed {
		row.Rules = append(row.Rules, "only the outside can be reached")
	}
	return row
}
