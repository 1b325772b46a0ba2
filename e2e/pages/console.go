package main

import (
	"context"
	"errors"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// console is a VM on a real host, from the sign-in to its end: somebody types into its console and into its display,
// and leaves them by the keyboard.
func (t *test) console() (err error) {
	host, err := t.server.realHost(t.browser.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	ctx, end, err := t.browser.strangersTab()
	if err != nil {
		return err
	}
	defer end()
	err = chromedp.Do(ctx, looks[0].step(), t.browser.byIssuer(), t.browser.listening(),
		t.browser.visit("/vms/new"), set("#project", "real"), set("#shape", "tiny"), write("#vmname", "typed"),
		write("#image", "micro"), tick("[name=display]"), press("#create .go"), text("h1", "typed"),
		text("#now .state", "running"), press("#console"), text("h1", "Console of typed"), text("#link", "Connected"),
		text(rows, "#"), // the guest's prompt
		// in a colour that is in no sheet
		focus(typing), key(`printf '\033[38;2;200;90;90m%s by hand\033[m\n' $((6 * 7))`+kb.Enter),
		text(rows, "42 by hand"), key(`setsid sh -c 'exec sh </dev/tty1 >/dev/tty1 2>&1' &`+kb.Enter))
	if err != nil {
		return err
	}
	err = errors.Join(t.looked(ctx, "vm-console"), chromedp.Do(ctx, leave(typing), press("#leave"), text("h1", "typed")))
	if err != nil {
		return err
	}
	if err := t.display(ctx); err != nil {
		return err
	}
	return chromedp.Do(ctx, press("#delete"), press(".sure"), text("h1", "VMs"))
}

const (
	rows   = "#terminal .xterm-rows"
	typing = "#terminal textarea"
	screen = "#display canvas"
)

// display is what is typed into the VM's display, and comes to the guest's other terminal: the console shows what the
// shell there has made.
func (t *test) display(ctx context.Context) error {
	err := chromedp.Do(ctx, press("#display"), text("h1", "Display of typed"), text("#link", "Connected"),
		until("a screen with something on it", lit), js(`document.querySelector("`+screen+`").focus()`),
		key("touch /tmp/by-eye"+kb.Enter)) // without Shift, of which the browser is not told
	if err != nil {
		return err
	}
	return errors.Join(t.looked(ctx, "vm-display"),
		chromedp.Do(ctx, leave(screen), press("#leave"), press("#console"), text("#link", "Connected"),
			focus(typing), key("until ls /tmp/by*; do sleep 1; done"+kb.Enter), text(rows, "/tmp/by-eye"),
			leave(typing), press("#leave"), text("h1", "typed")))
}

// lit reports whether a screen has more than black.
const lit = `(() => {
	const c = document.querySelector("` + screen + `");
	return !!c && c.width > 0 && c.getContext("2d").getImageData(0, 0, c.width, c.height).data
		.some((v, i) => i % 4 < 3 && v > 99);
})()`

// looked is what is found of the page that is shown in all looks; it ends with the first one.
func (t *test) looked(ctx context.Context, name string) error {
	var all []error
	for _, l := range looks {
		all = append(all, chromedp.Do(ctx, l.step()), t.holds(ctx, name, l))
	}
	return errors.Join(append(all, chromedp.Do(ctx, looks[0].step()))...)
}

// leave gives the keyboard back to the page.
func leave(selector string) step {
	return chromedp.Steps(js(`document.querySelector("`+selector+`").focus()`),
		chromedp.KeyEvent("]", chromedp.KeyModifiers(chromedp.ModifierCtrl)),
		until("the keyboard is the page's", `document.activeElement.id === "leave"`))
}
