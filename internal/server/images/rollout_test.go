package images

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
)

const digest = "sha256:aaaa"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func tasks(op farm.ImageOp, states ...farm.TaskState) (all []farm.ImageTask) {
	for i, s := range states {
		all = append(all, farm.ImageTask{Order: "o", Host: string(rune('a' + i)), Op: op, State: s,
			Digests: []string{digest}})
	}
	return all
}

func has1(images ...string) hostAt {
	return hostAt{known: true, facts: farm.Facts{Capability: catalogueCapability, Images: images}}
}

// states are those of all tasks after one pass.
func after(o farm.ImageOrder, all []farm.ImageTask, hosts map[string]hostAt, now time.Time) (map[string]farm.TaskState,
	bool) {
	changed, ended := next(o, all, hosts, now)
	out := map[string]farm.TaskState{}
	for _, t := range append(all, changed...) {
		out[t.Host] = t.State
	}
	return out, ended
}

func TestNext(t *testing.T) {
	w, a, d, f := farm.TaskWaiting, farm.TaskActive, farm.TaskDone, farm.TaskFailed
	silent, old := has1(), has1()
	silent.silent, old.old = true, true
	refuses := has1()
	refuses.facts.ImageUse = []farm.ImageUse{{Order: "o", Reason: "no space"}}
	for name, c := range map[string]struct {
		op    farm.ImageOp
		tasks []farm.TaskState
		hosts map[string]hostAt
		late  bool
		want  map[string]farm.TaskState
		ended bool
	}{
		"some at a time": {farm.ImageFetch, []farm.TaskState{w, w, w}, map[string]hostAt{"a": has1(), "b": has1(),
			"c": has1()}, false, map[string]farm.TaskState{"a": a, "b": a, "c": w}, false},
		"the next when one has it": {farm.ImageFetch, []farm.TaskState{a, a, w}, map[string]hostAt{"a": has1(digest),
			"b": has1(), "c": has1()}, false, map[string]farm.TaskState{"a": d, "b": a, "c": a}, false},
		"who is silent holds nobody up": {farm.ImageFetch, []farm.TaskState{a, a, w, w}, map[string]hostAt{"a": silent,
			"b": has1(), "c": silent, "d": has1()}, false, map[string]farm.TaskState{"a": a, "b": a, "c": w, "d": a},
			false},
		"removed where it is not": {farm.ImageDrop, []farm.TaskState{a, a}, map[string]hostAt{"a": has1("sha256:b"),
			"b": has1(digest)}, false, map[string]farm.TaskState{"a": d, "b": a}, false},
		"all over": {farm.ImageFetch, []farm.TaskState{a, a, d, f}, map[string]hostAt{"a": has1(digest), "b": refuses},
			false, map[string]farm.TaskState{"a": d, "b": f, "c": d, "d": f}, true},
		"forgotten, and of an old release": {farm.ImageFetch, []farm.TaskState{w, a}, map[string]hostAt{"b": old},
			false, map[string]farm.TaskState{"a": f, "b": f}, true},
		"given up": {farm.ImageFetch, []farm.TaskState{w, a, d}, map[string]hostAt{"a": silent, "b": has1()}, true,
			map[string]farm.TaskState{"a": f, "b": f, "c": d}, true},
	} {
		o := farm.ImageOrder{ID: "o", AtOnce: 2, Created: noon}
		now := noon.Add(time.Minute)
		if c.late {
			now = noon.Add(orderAge + time.Minute)
		}
		got, ended := after(o, tasks(c.op, c.tasks...), c.hosts, now)
		if diff := cmp.Diff(c.want, got); diff != "" || ended != c.ended {
			t.Errorf("%s: ended %v\n%s", name, ended, diff)
		}
	}
}

// What changes is written, and nothing else: each row wakes its host.
func TestNextWritesNews(t *testing.T) {
	o := farm.ImageOrder{ID: "o", AtOnce: 2, Created: noon}
	all := tasks(farm.ImageFetch, farm.TaskActive, farm.TaskActive)
	at := has1()
	at.facts.ImageUse = []farm.ImageUse{{Digest: digest, Done: 3, Total: 10}}
	changed, _ := next(o, all, map[string]hostAt{"a": at, "b": has1()}, noon)
	if len(changed) != 1 || changed[0].Host != "a" || changed[0].Done != 3 || changed[0].Total != 10 {
		t.Errorf("%+v", changed)
	}
	all[0] = changed[0]
	if changed, _ = next(o, all, map[string]hostAt{"a": at, "b": has1()}, noon); len(changed) != 0 {
		t.Errorf("the same again: %+v", changed)
	}
}

func TestShape(t *testing.T) {
	plain := farm.Shape{CPUs: 4, Memory: 4 * farm.GiB}
	with := func(s farm.Shape, change func(*farm.Shape)) farm.Shape { change(&s); return s }
	props := func(kv ...string) farm.FleetImage {
		i := farm.FleetImage{Properties: map[string]string{}}
		for n := 0; n < len(kv); n += 2 {
			i.Properties[kv[n]] = kv[n+1]
		}
		return i
	}
	for name, c := range map[string]struct {
		image farm.FleetImage
		shape farm.Shape
		asked bool
		want  farm.Shape
		code  farm.Code
	}{
		"nothing said": {props("os_note", "x"), plain, false, plain, ""},
		"topology": {props("hw_cpu_sockets", "2"), plain, false, with(plain, func(s *farm.Shape) {
			s.Guest = farm.GuestTopology{Sockets: 2, Cores: 2, Threads: 1}
		}), ""},
		"somebody asked": {props("hw_cpu_sockets", "2"), plain, true, plain, ""},
		"beyond the shape's maximum": {props("hw_cpu_sockets", "4"), with(plain,
			func(s *farm.Shape) { s.MaxGuest.Sockets = 2 }), false, farm.Shape{}, farm.CodePropertyConflict},
		"cells": {props("hw_numa_nodes", "2"), plain, false, with(plain, func(s *farm.Shape) { s.Cells = 2 }), ""},
		"pages of a choice": {props("hw_mem_page_size", "2048"), with(plain,
			func(s *farm.Shape) { s.Pages = []farm.Bytes{farm.GiB, 2 * farm.MiB, 0} }), false, with(plain,
			func(s *farm.Shape) { s.Pages = []farm.Bytes{2 * farm.MiB} }), ""},
		"pages without a choice": {props("hw_mem_page_size", "2048"), plain, false, farm.Shape{},
			farm.CodePropertyConflict},
		"processor": {props("hw_cpu_model", "host-model"), plain, false, with(plain,
			func(s *farm.Shape) { s.CPUModel = "host-model" }), ""},
		"display": {props("hw_video_model", "vga"), plain, false, with(plain,
			func(s *farm.Shape) { s.Display = true }), ""},
		"too little memory": {farm.FleetImage{MinMemory: 8 * farm.GiB}, plain, false, farm.Shape{}, CodeImageSmall},
		"too little disk": {farm.FleetImage{MinDisk: 8 * farm.GiB, VirtualSize: 4 * farm.GiB}, plain, false,
			farm.Shape{}, CodeImageSmall},
		"disk and scratch": {farm.FleetImage{MinDisk: 8 * farm.GiB, VirtualSize: 4 * farm.GiB}, with(plain,
			func(s *farm.Shape) { s.Scratch = 4 * farm.GiB }), false, with(plain,
			func(s *farm.Shape) { s.Scratch = 4 * farm.GiB }), ""},
		"larger root": {farm.FleetImage{MinDisk: 8 * farm.GiB, VirtualSize: 4 * farm.GiB}, with(plain,
			func(s *farm.Shape) { s.Disks.Root = 8 * farm.GiB }), false, with(plain,
			func(s *farm.Shape) { s.Disks.Root = 8 * farm.GiB }), ""},
	} {
		got, err := Shape(c.image, c.shape, c.asked)
		if c.code != "" {
			if !farm.IsCode(err, c.code) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// A property of which nothing comes is refused: it would be a promise.
func TestProperties(t *testing.T) {
	for text, good := range map[string]bool{"hw_cpu_sockets": true, "hw_cpu_model": true, "hw_video_model": false,
		"os_distro": true, "": false} {
		if err := checkProperties(map[string]string{text: "1"}); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, c := range []struct {
		key, value string
		good       bool
	}{{"hw_disk_bus", "virtio", true}, {"hw_disk_bus", "ide", false}, {"hw_video_model", "vga", true},
		{"hw_video_model", "qxl", false}} {
		if err := checkProperties(map[string]string{c.key: c.value}); (err == nil) != c.good {
			t.Errorf("%s %q: %v", c.key, c.value, err)
		}
	}
}
