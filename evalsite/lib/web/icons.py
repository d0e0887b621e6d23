"""The names of all available icons: the symbols of the vendored sprite (Bootstrap Icons)."""

SPRITE = "vendor/bootstrap-icons/sprite.svg"

_NAMES = """
archive arrow-clockwise arrow-left-right arrow-repeat arrow-return-left arrow-right arrow-up-right bar-chart
box-arrow-in-right box-arrow-right card-text cash-coin chat-left-text check-circle-fill check-lg check2-square
chevron-down chevron-expand chevron-left chevron-right chevron-up circle circle-half clipboard clipboard-check
clock clock-history columns-gap copy cpu dash-circle-dotted dash-lg database download exclamation-circle
exclamation-triangle eye eye-slash file-earmark-text flag funnel gear graph-up grid grid-3x3-gap hand-thumbs-up
hdd-network hourglass-split house image images info-circle journal-text key keyboard layers link-45deg list
list-check list-ul lock moon patch-check-fill pause-circle-fill pause-fill pencil people person person-circle
play-fill plus-lg question-circle robot rulers save search share shield-check shield-lock shuffle slash-circle
sliders snow sort-down sort-up speedometer2 star star-fill stop-fill sun table tag terminal three-dots toggles
trash upload x-lg x-octagon-fill
"""
ICONS = frozenset(_NAMES.split())
