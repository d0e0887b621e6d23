"""What a browser does in its own time, waited for: nothing is read once and hoped to be there."""

# A picture that waits until it is scrolled to is asked for now; one that is broken never passes, and the wait says so.
PICTURES = """() => [...document.images].every(image => {
    if (image.loading === 'lazy') image.loading = 'eager';
    return image.complete && image.naturalWidth > 0;
})"""


def see_pictures(page):
    """Return when each picture of the page is there, those too that would wait until they are scrolled to."""
    page.wait_for_function(PICTURES)
