"""Where Super Mario Bros keeps what: addresses in its 2 KiB of RAM, and the numbers that they hold.

Names follow the public disassembly of the game. Objects stand in columns: slot k of a column is its address + k. Kernels (`holdfast.jit`) take them as constants.
"""

from __future__ import annotations

# The game as a whole.
MODE = 0x0770  # 0 title, 1 game, 2 castle won, 3 game over
TASK = 0x0772  # 3: the engine runs; less: an area is being loaded
PAUSED = 0x0776  # bit 0: paused; bit 7: START is still held
PAUSE_TIMER = 0x0777
WORLD, STAGE = 0x075F, 0x075C  # counted from 0
LIVES = 0x075A
AREA_KIND, AREA_NUMBER = 0x074E, 0x074F  # water, ground, underground, castle; which of its kind
CLOUDS = 0x0743  # non-zero: falling out of the picture leads back, it does not kill
TIME_EXPIRED = 0x0759
TIMER = 0x07F8  # 3 digits
SCORE = 0x07DD  # 6 digits, in tens
COINS = 0x075E  # 0-99
SCREEN_PAGE, SCREEN_X = 0x071A, 0x071C  # left edge of the picture

# Mario.
SUBROUTINE = 0x000E  # which routine moves him, one of the numbers below
FLOAT = 0x001D  # 0 standing, 1 jumping, 2 falling, 3 climbing
FACING = 0x0033  # 1 right, 2 left
X_SPEED, Y_SPEED = 0x0057, 0x009F  # signed; 40 is running
X_PAGE, X_LOW = 0x006D, 0x0086
Y_PAGE, Y_LOW = 0x00B5, 0x00CE  # top of a box of 16 x 32; page 1 is the picture, 2 below it
HELD = 0x000A  # A and B as the game saw them last
SWIMMING = 0x0704  # non-zero in water
CROUCHING = 0x0714
POWER = 0x0756  # 0 small, 1 tall, 2 fire
SMALL = 0x0754  # 1 small, 0 tall
INJURY_TIMER, STAR_TIMER = 0x079E, 0x079F

SLIDING, ENDING, LOST, CONTROLLED, DYING = 4, 5, 6, 8, 11
"""SUBROUTINE: down the flagpole, into the castle, life lost, the player steers, death animation."""

# Objects: five enemies and one power-up.
OBJECTS = 6
OBJECT_ON, OBJECT_KIND, OBJECT_STATE = 0x000F, 0x0016, 0x001E
OBJECT_X_SPEED, OBJECT_Y_SPEED = 0x0058, 0x00A0
OBJECT_PAGE, OBJECT_X = 0x006E, 0x0087
OBJECT_Y_PAGE, OBJECT_Y = 0x00B6, 0x00CF
SPIN = 0x00A0  # of a fire bar: its angle, 32 to a turn (shares its column with the speed)

FIRE_BAR, LONG_FIRE_BAR, LAST_FIRE_BAR = 0x1B, 0x1F, 0x20
FIRST_LIFT, LAST_LIFT = 0x24, 0x2C
SMALL_LIFT = 0x2B  # this and the next are 24 wide, the others 48
BOWSER, POWER_UP, VINE, FLAG, STAR_FLAG, SPRING = 0x2D, 0x2E, 0x2F, 0x30, 0x31, 0x32
CANNON_BULLET, WARP, TOAD = 0x33, 0x34, 0x35
FIREWORKS = 0x16

# Hammers (and coins in the air).
MISCELLANEOUS = 9
MISC_STATE, MISC_PAGE, MISC_X, MISC_Y_PAGE, MISC_Y = 0x002A, 0x007A, 0x0093, 0x00C2, 0x00DB

# What the screen is built of: two pages of 13 rows of 16 blocks, a ring that the game fills as it scrolls.
BLOCKS = 0x0500
BLOCK_ROWS, BLOCK_COLUMNS = 13, 16
BLOCK_TOP = 32  # line of the picture at which row 0 begins
