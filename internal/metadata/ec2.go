package metadata

import (
	"fmt"
	"slices"
	"strings"
)

// versions are the dates that programs ask for; all of them get the same. "latest" is what people type.
var versions = []string{"1.0", "2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "latest"}

func isVersion(text string) bool { return slices.Contains(versions, text) }

// leaf is one value of EC2's tree: the path below the version, and the text.
type leaf struct{ path, text string }

// ec2 is what EC2's service would tell of the VM.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html has the names.
func ec2(vm VM) []leaf {
	card := "meta-data/network/interfaces/macs/" + vm.MAC.String() + "/"
	address := vm.Address.Addr().String()
	leaves := []leaf{
		{"meta-data/ami-id", vm.Image},
		{"meta-data/ami-launch-index", "0"},
		{"meta-data/hostname", vm.Hostname},
		{"meta-data/instance-action", "none"},
		{"meta-data/instance-id", vm.ID},
		{"meta-data/instance-type", shapeName(vm)},
		{"meta-data/local-hostname", vm.Hostname},
		{"meta-data/local-ipv4", address},
		{"meta-data/mac", vm.MAC.String()},
		{card + "device-number", "0"},
		{card + "local-hostname", vm.Hostname},
		{card + "local-ipv4s", address},
		{card + "mac", vm.MAC.String()},
		{card + "subnet-ipv4-cidr-block", vm.Address.Masked().String()},
		{"meta-data/placement/availability-zone", vm.Cell},
		{"meta-data/reservation-id", "r-" + vm.ID},
	}
	for n, key := range vm.Keys {
		leaves = append(leaves, leaf{fmt.Sprintf("meta-data/public-keys/%d/openssh-key", n), key})
	}
	for key, value := range vm.Tags {
		if !strings.Contains(key, "/") { // it would look like a directory
			leaves = append(leaves, leaf{"meta-data/tags/instance/" + key, value})
		}
	}
	if len(vm.UserData) > 0 {
		leaves = append(leaves, leaf{"user-data", ""}) // in listings alone
	}
	slices.SortFunc(leaves, func(a, b leaf) int { return strings.Compare(a.path, b.path) })
	return leaves
}

func shapeName(vm VM) string {
	if vm.Shape == "" {
		return "custom"
	}
	return vm.Shape
}

// lookup is the text at a path, or the names below it, one a line; a name that has more below it ends in a slash. A
// path may end in one.
func lookup(leaves []leaf, path string) (string, bool) {
	path = strings.TrimSuffix(path, "/")
	var names []string
	for _, l := range leaves {
		rest, below := strings.CutPrefix(l.path, path+"/")
		switch {
		case l.path == path:
			return l.text, true
		case path == "":
			rest = l.path
		case !below:
			continue
		}
		name, _, more := strings.Cut(rest, "/")
		switch {
		case path == "meta-data/public-keys":
			name += "=key-" + name // as EC2: with the name of the key
		case more && path != "": // of what is at the top, EC2 lists bare names
			name += "/"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, "\n"), len(names) > 0
}
