package chart

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/farm"
)

const (
	swatch      = 11
	letterTenth = 64 // width of a letter of the legend, in tenths: a little more than the mean of common fonts
	legendGap   = 20
)

// legend explains bars, marks and colours below the host, from y on, and gives the height of all.
func (d *drawing) legend(y, width int) int {
	x := 0
	// place finds room for a swatch, some more, and letters, and draws there.
	place := func(more int, text string, draw func(x, y int)) {
		needs := swatch + 6 + more + utf8.RuneCountInString(text)*letterTenth/10
		if x > 0 && x+needs > width {
			x, y = 0, y+lineHeight+3
		}
		draw(x, y)
		d.text(x+swatch+6+more, y+12, "legend", text)
		x += needs + legendGap
	}
	for _, part := range d.parts() {
		place(0, part[1], func(x, y int) { d.swatch(x, y, `class="`+part[0]+`"`) })
	}
	for i, vm := range d.host.Domains {
		if i == mostLegend {
			place(0, fmt.Sprintf("and %d more VMs", len(d.host.Domains)-mostLegend), func(int, int) {})
			break
		}
		level, marks := d.marked(func(m Mark) bool { return m.VM != "" && m.VM == vm.Name })
		more := 0
		if level > 0 {
			more = 17
		}
		place(more, d.vmText(vm), func(x, y int) {
			d.swatch(x, y, d.vmFill(i, vm))
			if level > 0 {
				d.badge(x+swatch+6, y+1, level, marks)
			}
		})
	}
	return y + lineHeight + 6
}

// parts are the classes of the picture that need words, and the words.
func (d *drawing) parts() [][2]string {
	out := [][2]string{{"heldpages", "huge pages in use"}, {"freepages", "free huge pages"},
		{"other", "other memory in use"}}
	if !d.host.Isolated.Empty() {
		out = append(out, [2]string{"isolated", "isolated CPU"})
	}
	for level := Fault; level >= Advice; level-- {
		for _, m := range d.marks {
			if m.Level == level && d.drawn(m) {
				out = append(out, [2]string{"sign " + level.class(), "place of a finding: " + level.class()})
				break
			}
		}
	}
	return out
}

func (d *drawing) vmText(vm farm.Domain) string {
	text := "VM " + cut(vm.Name)
	if vm.VCPUs > 0 {
		text += fmt.Sprintf(", %d vCPUs", vm.VCPUs)
	}
	if !vm.Running {
		text += ", off"
	}
	if pins(d.host, vm).Empty() {
		text += ", not pinned"
	}
	return text
}

// vmFill is the attribute that gives a VM's swatch its colour.
func (d *drawing) vmFill(i int, vm farm.Domain) string {
	if pins(d.host, vm).Empty() {
		return `class="unpinned"`
	}
	return fmt.Sprintf(`fill="%s"`, hue(i))
}

func (d *drawing) swatch(x, y int, fill string) {
	d.add(`<rect %s x="%d" y="%d" width="%d" height="%d" rx="2"/>`, fill, x, y+2, swatch, swatch)
}

// badge is a small triangle that carries a mark's text.
func (d *drawing) badge(x, y int, level Level, text string) {
	d.add(`<g class="sign %s"><title>%s</title><path d="M%d %dl6 11h-12z"/></g>`, level.class(), escape(text), x+6, y)
}

func (d *drawing) text(x, y int, class, text string) {
	d.add(`<text class="%s" x="%d" y="%d">%s</text>`, class, x, y, escape(text))
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

// hue is the colour of a VM, by its number: neighbours are far apart on the circle.
func hue(i int) string { return fmt.Sprintf("hsl(%d 62%% 70%%)", (205+i*137)%360) }

func cut(s string) string {
	if utf8.RuneCountInString(s) <= nameLength {
		return s
	}
	return string([]rune(s)[:nameLength-1]) + "…"
}

var entities = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// escape makes text safe between tags and in quotes. XML knows no control characters at all.
func escape(s string) string {
	return entities.Replace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s))
}

// Sheet is the style of every picture, and part of it, so that one saved by itself looks the same. Colours follow the
// reader's, and paper is light.
const Sheet = `.host-chart{--ink:#1b2733;--soft:#5b6b7a;--line:#c6d0da;--card:#f6f8fa;--cell:#fff;--group:#e9eef3;--held:#2f6fa8;--idle:#9cc4e4;--used:#b4bec8;--fault:#c62828;--warning:#c77700;--advice:#7a4fa3;font-family:system-ui,sans-serif;max-width:100%;height:auto}
@media screen and (prefers-color-scheme:dark){.host-chart{--ink:#e4eaf0;--soft:#9aa9b8;--line:#3b4958;--card:#1b242d;--cell:#10171e;--group:#26323e;--held:#5aa2df;--idle:#2d567a;--used:#566473;--fault:#ff6b6b;--warning:#ffb74d;--advice:#b797dd}}
.host-chart text{fill:var(--ink);font-size:12px}
.host-chart .head{font-weight:600;font-size:13px}
.host-chart .pages,.host-chart .legend{fill:var(--soft)}
.host-chart .legend{font-size:11.5px}
.host-chart .number{font-size:10.5px;text-anchor:middle;fill:var(--soft)}
.host-chart .held{fill:#14202b;font-weight:600}
.host-chart .card{fill:var(--card);stroke:var(--line)}
.host-chart .cache{fill:var(--group)}
.host-chart .nocache{fill:none;stroke:var(--line);stroke-dasharray:3 3}
.host-chart .cpu{fill:var(--cell);stroke:var(--line);stroke-width:.5}
.host-chart .core{fill:none;stroke:var(--soft)}
.host-chart .bar{fill:var(--cell);stroke:var(--line);stroke-width:.5}
.host-chart .heldpages{fill:var(--held)}
.host-chart .freepages{fill:var(--idle)}
.host-chart .other{fill:var(--used)}
.host-chart .unpinned,.host-chart .isolated{fill:none;stroke:var(--soft);stroke-dasharray:2 2}
.host-chart .mark{fill:none;stroke-width:2}
.host-chart .mark.fault{stroke:var(--fault)}
.host-chart .mark.warning{stroke:var(--warning)}
.host-chart .mark.advice{stroke:var(--advice)}
.host-chart .sign.fault{fill:var(--fault)}
.host-chart .sign.warning{fill:var(--warning)}
.host-chart .sign.advice{fill:var(--advice)}
`
