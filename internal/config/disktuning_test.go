package config

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestDiskTuning(t *testing.T) {
	a, err := ParseAgent([]byte("[disks.compute]\n"+
		"io = \"io_uring\"\niothreads = 2\n[disks.service]\nqueues = 4\n"), "x")
	if err != nil || a.Disks.Of(farm.PurposeCompute) != (DiskTuning{IO: "io_uring", IOThreads: 2}) ||
		a.Disks.Of(farm.PurposeService) != (DiskTuning{Queues: 4}) {
		t.Errorf("%+v, %v", a.Disks, err)
	}
	for text, want := range map[string]string{"cache = \"fast\"": "disks.compute.cache",
		"io = \"aio\"":                           "disks.compute.io",
		"io = \"native\"\ncache = \"writeback\"": "past the page cache",
		"iothreads = 65":                         "iothreads",
		"queues = -1":                            "queues",
		"discard = \"yes\"":                      "discard"} {
		_, err := ParseAgent([]byte("[disks.compute]\n"+text), "x")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

func TestAreas(t *testing.T) {
	a, err := ParseAgent([]byte("state_dir = \"/s\"\n[areas.jobs]\nvolume_group = \"vg\"\nthin_pool = \"p\"\n"+
		"[areas.cloud]\npath = \"/c\"\nquota = \"8G\"\n"), "x")
	if err != nil || a.Areas.Jobs.Path != "/s/vm" || a.Areas.Images.Path != "/s/images" || a.Areas.Cloud.Path != "/c" ||
		a.Areas.Cloud.Quota != 8*farm.GiB || a.Areas.Cloud.ThinPool != "p" {
		t.Errorf("%+v, %v", a.Areas, err)
	}
	for text, want := range map[string]string{"[areas.jobs]\npath = \"x\"": "absolute",
		"[areas.jobs]\nthin_pool = \"p\"":     "pool",
		"[areas.jobs]\nvolume_group = \"-f\"": "LVM takes", "[areas.jobs]\nwipe = \"never\"": "wipe",
		"[areas.cloud]\nquota = \"1G\"": "share the path", "[areas.cloud]\nvolume_group = \"b\"": "share the path",
		"[areas.images]\npath = \"/v\"\n[areas.jobs]\npath = \"/v\"": "of their own"} {
		if _, err := ParseAgent([]byte(text), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
